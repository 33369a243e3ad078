//! The tests of the crate, in one program. Those of several processes are beside it.
#![cfg(not(miri))]

#[cfg(target_os = "linux")]
mod attacks;
#[cfg(target_os = "linux")]
mod channel;
#[cfg(target_os = "linux")]
mod channel_ends;
#[cfg(target_os = "linux")]
mod channel_hostile;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod handles;
#[cfg(target_os = "linux")]
mod hostile;
