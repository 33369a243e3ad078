//! What the system says of processes: memory and CPU time, by `/proc`. Only the load test needs it.

use std::collections::BTreeMap;
use std::fs;
use std::os::linux::fs::MetadataExt;

use anyhow::{Context, Result};

/// The ticks of a second, in which Linux counts CPU time for programs on every architecture of today.
const TICKS: f64 = 100.0;
/// What the link of a descriptor of a sealed file starts with.
const FILE: &str = "/memfd:dlbridge";

/// A process and its children.
pub(super) struct Processes(Vec<String>);

/// The CPU time of all processes, in seconds since the machine was started.
pub(super) struct Machine {
    /// Used.
    pub busy: f64,
    /// Used or not.
    pub total: f64,
}

impl Processes {
    /// A process and the children that it has now.
    pub(super) fn of(process: u32) -> Result<Self> {
        let mut all = vec![process.to_string()];
        for thread in fs::read_dir(format!("/proc/{process}/task"))? {
            let children = fs::read_to_string(thread?.path().join("children"))?;
            all.extend(children.split_whitespace().map(str::to_owned));
        }
        Ok(Self(all))
    }

    /// This process.
    pub(super) fn own() -> Self {
        Self(vec!["self".to_owned()])
    }

    /// CPU time, in seconds.
    pub(super) fn cpu(&self) -> Result<f64> {
        let mut ticks = 0;
        for process in &self.0 {
            let text = fs::read_to_string(format!("/proc/{process}/stat"))?;
            // Behind the program's name, which is in parentheses: fields 14 and 15 of all.
            let (_, fields) = text.rsplit_once(')').context("a name")?;
            for field in fields.split_whitespace().skip(11).take(2) {
                ticks += field.parse::<u64>()?;
            }
        }
        Ok(ticks as f64 / TICKS)
    }

    /// Memory in bytes: the proportional set sizes without shared memory, and each sealed file whole
    /// and once, mapped or not.
    pub(super) fn memory(&self) -> Result<u64> {
        let (mut size, mut files) = (0, BTreeMap::new());
        for process in &self.0 {
            let sizes = fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
            let field = |name: &str| -> Result<u64> {
                let line = sizes.lines().find_map(|line| line.strip_prefix(name));
                let number = line.and_then(|line| line.split_whitespace().next());
                Ok(number.context("a size")?.parse::<u64>()? << 10)
            };
            size += field("Pss:")? - field("Pss_Shmem:")?;
            for line in fs::read_to_string(format!("/proc/{process}/maps"))?.lines() {
                let fields: Vec<_> = line.split_whitespace().collect();
                if let [range, _, _, _, inode, FILE, ..] = fields[..] {
                    let (start, end) = range.split_once('-').context("a range")?;
                    let [start, end] = [start, end].map(|it| u64::from_str_radix(it, 16));
                    let file = files.entry(inode.parse::<u64>()?).or_insert(0);
                    *file = (end? - start?).max(*file);
                }
            }
            for descriptor in fs::read_dir(format!("/proc/{process}/fd"))?.flatten() {
                let path = descriptor.path();
                // A file that was closed in the meantime is none.
                let is_file = |link: std::path::PathBuf| link.to_string_lossy().starts_with(FILE);
                if fs::read_link(&path).is_ok_and(is_file) {
                    if let Ok(found) = fs::metadata(&path) {
                        let file = files.entry(found.st_ino()).or_insert(0);
                        *file = (found.st_blocks() * 512).max(*file);
                    }
                }
            }
        }
        Ok(size + files.values().sum::<u64>())
    }
}

/// Asks for the CPU time of all processes.
pub(super) fn machine() -> Result<Machine> {
    let text = fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().and_then(|line| line.strip_prefix("cpu ")).context("a line")?;
    let ticks = line.split_whitespace().take(8).map(str::parse::<f64>);
    let ticks: Vec<_> = ticks.collect::<Result<_, _>>()?;
    let total = ticks.iter().sum::<f64>() / TICKS;
    // The fourth and fifth are idle.
    Ok(Machine { busy: total - (ticks[3] + ticks[4]) / TICKS, total })
}
