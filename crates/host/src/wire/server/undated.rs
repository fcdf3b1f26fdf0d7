//! Answering without a date. The library that writes answers dates them, and panics where the clock is at a time that
//! HTTP has no words for: before 1970, or after the year 9999. There, every request has one answer, written by hand.

use crate::api::error::{ApiError, Kind};
use std::io::ErrorKind;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::UnixStream;

/// Seconds from 1970 to the year 10000.
const END: u64 = 253_402_300_800;

/// Whether answers can be dated at this moment.
pub fn is_possible(now: SystemTime) -> bool {
    now.duration_since(UNIX_EPOCH).is_ok_and(|since| since.as_secs() < END)
}

/// Tells whoever asks anything what is wrong, within `timeout`.
pub async fn refuse(stream: UnixStream, timeout: Duration) {
    let message = "the clock of this machine says a time before 1970, or after the year 9999: virtual disks are \
                   served, and commands will be answered when it is right";
    let error = ApiError::new(Kind::NotPossible, message).hint("date");
    let body = serde_json::to_string(&error).unwrap_or_default();
    let head = "HTTP/1.1 409 Conflict\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length:";
    let whole = format!("{head} {}\r\n\r\n{body}", body.len());
    let told = async {
        let mut answered = false;
        let mut asked = [0; 4096];
        // Until whoever asked has gone: what is closed with something unread takes its answer away with it.
        while stream.readable().await.is_ok() {
            match stream.try_read(&mut asked) {
                Ok(1..) if !answered => answered = stream.try_write(whole.as_bytes()).is_ok(),
                Ok(1..) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                _ => break,
            }
        }
    };
    let _ = tokio::time::timeout(timeout, told).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_between_1970_and_the_year_9999_can_be_written() {
        let at = |seconds| is_possible(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!((at(0), at(END - 1), at(END)), (true, true, false));
        assert!(!is_possible(UNIX_EPOCH - Duration::from_nanos(1)));
    }
}
