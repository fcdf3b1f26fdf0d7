//! A connection that waits only so long for its client to take what it is sent.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::time::Sleep;

/// A stream whose writes fail when the other side takes nothing for the length of the timeout.
pub(super) struct Timed {
    stream: UnixStream,
    timeout: Duration,
    /// While it waits: when it has waited long enough.
    late: Option<Pin<Box<Sleep>>>,
}

impl Timed {
    pub(super) fn new(stream: UnixStream, timeout: Duration) -> Timed {
        Timed { stream, timeout, late: None }
    }

    fn validated<T>(&mut self, context: &mut Context<'_>, wrote: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.late = None;
            return wrote;
        }
        let timeout = self.timeout;
        let late = self.late.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        if late.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        self.late = None;
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Timed {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Timed {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.validated(context, wrote)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.validated(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    #[test]
    fn a_client_that_takes_nothing_is_given_up_and_one_that_takes_a_little_is_not() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let mut ours = Timed::new(ours, Duration::from_millis(20));
            let mut sent = 0usize;
            let error = loop {
                let wrote = poll_fn(|context| Pin::new(&mut ours).poll_write(context, &[0; 4096])).await;
                match wrote {
                    Ok(some) => sent += some,
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            let (mut taken, mut room) = (0, vec![0; sent]);
            while taken < sent {
                theirs.readable().await.unwrap();
                taken += theirs.try_read(&mut room).unwrap_or(0);
            }
            assert!(poll_fn(|context| Pin::new(&mut ours).poll_write(context, &[0; 1])).await.is_ok());
        });
    }
}
