//! An inference gateway: HTTP in front, Python workers behind, and tensors between them that no
//! process copies.

#[cfg(target_os = "linux")]
mod gateway;

#[cfg(target_os = "linux")]
fn main() -> anyhow::Result<()> {
    gateway::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("expected Linux, which seals memory, found {}", std::env::consts::OS);
    std::process::exit(1);
}
