//! Measures dlbridge and its peers in Rust. Prints tab-separated lines, from which `cargo xtask
//! bench rust` creates tables.
//!
//! `dlbridge-bench-rust shares|views|reads|processes` measures. For a tool that counts
//! instructions, `shares GROUP CASE COUNT` runs one case COUNT times, `views COUNT` all loops, and
//! `processes WAY BYTES COUNT READERS` sends COUNT batches, by a socket (0) or a channel (1).

mod count;
#[cfg(target_os = "linux")]
mod processes;
#[cfg(target_arch = "x86_64")]
mod reads;
mod shares;
mod views;

#[global_allocator]
static ALLOCATOR: count::Counting = count::Counting;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
    match (words.first().map(String::as_str), &numbers[..]) {
        (Some("shares"), []) => shares::measure(),
        (Some("shares"), &[group, case, count]) => shares::run(group, case, count),
        (Some("views"), []) => views::measure(),
        (Some("views"), &[times]) => views::count(times),
        #[cfg(target_arch = "x86_64")]
        (Some("reads"), []) => reads::measure(),
        #[cfg(target_os = "linux")]
        (Some("processes"), []) => processes::measure(),
        #[cfg(target_os = "linux")]
        (Some("processes"), &[way, size, count]) => processes::read(way, size, count),
        #[cfg(target_os = "linux")]
        (Some("processes"), &[way, size, count, readers]) => {
            let (seconds, cpu) = processes::send(way, size, count, readers);
            println!("{:.0} messages/s, {:.2} us of the CPU each", 1.0 / seconds, cpu * 1e6);
        }
        _ => panic!(
            "expected shares, views, reads or processes; to count: shares 0 1 100, views 100"
        ),
    }
}
