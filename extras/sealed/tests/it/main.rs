//! The tests of the crate, in one program. Those of several processes are beside it. Miri has no memory files.

#[cfg(all(target_os = "linux", not(miri)))]
mod attacks;
#[cfg(target_endian = "big")]
mod big_endian;
#[cfg(all(target_os = "linux", not(miri)))]
mod channel;
#[cfg(all(target_os = "linux", not(miri)))]
mod channel_ends;
#[cfg(all(target_os = "linux", not(miri)))]
mod channel_hostile;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod elsewhere;
#[cfg(all(target_os = "linux", not(miri)))]
mod files;
#[cfg(all(target_os = "linux", not(miri)))]
mod handles;
#[cfg(all(target_os = "linux", not(miri)))]
mod hostile;
#[cfg(target_endian = "little")]
mod safetensors_0_8;
