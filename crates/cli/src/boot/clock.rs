//! The time of day. A machine that was frozen and goes on later, or was forked from another one's memory, has the time of the
//! moment when it was frozen; its hardware clock follows the host's.

use super::say;
use nix::libc;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::{Duration, SystemTime};

/// How often the two clocks are compared.
const LOOK: Duration = Duration::from_secs(5);
/// The hardware clock counts whole seconds.
const MOST_APART: i64 = 2;
/// `RTC_RD_TIME` of the kernel's headers: nine numbers are read, of which the first six are second, minute, hour, day,
/// month from 0, year from 1900.
const READ: libc::Ioctl = 0x8024_7009;

pub(super) fn keep() {
    let Ok(clock) = File::open("/dev/rtc0") else { return };
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(LOOK);
            let Some(right) = read(&clock) else { return };
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs() as i64);
            if (right - now).abs() > MOST_APART {
                let time = libc::timespec { tv_sec: right, tv_nsec: 0 };
                // SAFETY: the argument outlives the call.
                unsafe { libc::clock_settime(libc::CLOCK_REALTIME, &raw const time) };
                say(&format!("the clock was {} s off", right - now));
            }
        }
    });
}

/// Seconds since 1970, in UTC.
fn read(clock: &File) -> Option<i64> {
    let mut time = [0_i32; 9];
    // SAFETY: the kernel writes nine numbers, and there is room for them.
    if unsafe { libc::ioctl(clock.as_raw_fd(), READ, time.as_mut_ptr()) } != 0 {
        return None;
    }
    seconds(&time)
}

fn seconds(time: &[i32; 9]) -> Option<i64> {
    let small = |number: i32| i8::try_from(number).ok();
    let year = i16::try_from(time[5] + 1900).ok()?;
    let (month, day) = (small(time[4] + 1)?, small(time[3])?);
    let moment = jiff::civil::DateTime::new(year, month, day, small(time[2])?, small(time[1])?, small(time[0])?, 0).ok()?;
    Some(jiff::tz::TimeZone::UTC.to_timestamp(moment).ok()?.as_second())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_hardware_clock_is_read() {
        assert_eq!(super::seconds(&[1, 0, 0, 1, 0, 70, 0, 0, 0]), Some(1));
        assert_eq!(super::seconds(&[0, 0, 0, 1, 0, 126, 0, 0, 0]), Some(1_767_225_600));
        assert_eq!(super::seconds(&[0, 0, 0, 32, 0, 126, 0, 0, 0]), None);
    }
}
