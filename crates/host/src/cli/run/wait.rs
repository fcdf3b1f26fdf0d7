//! Waiting for a job: a bar on a terminal, lines elsewhere. Ctrl-C ends the waiting, not the job.

use super::{Ran, Session};
use crate::api::error::{ApiError, Kind};
use crate::api::job::{JobInfo, JobState};
use crate::cli::exit::Exit;
use crate::ops::Perform;
use crate::ops::job::{JobShow, progress};
use crate::ops::watch::StatusShow;
use crate::wire::client::Client;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::SIGINT;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often the daemon is asked how far the job is.
const ASK_EVERY: Duration = Duration::from_millis(200);
/// Elsewhere than on a terminal a line is written each time this much more is done, in percent.
const LINE_EVERY: f64 = 10.0;

impl Session<'_, '_> {
    /// Shows the progress of a job until it ends, and how it ended.
    pub(super) fn wait(&mut self, weft: &Client, job: &str) -> Ran {
        let interrupted = Arc::new(AtomicBool::new(false));
        let watching = signal_hook::flag::register(SIGINT, interrupted.clone());
        let watching =
            watching.map_err(|error| ApiError::new(Kind::Internal, format!("cannot watch for Ctrl-C: {error}")))?;
        let ended = self.until_ended(weft, job, &interrupted);
        signal_hook::low_level::unregister(watching);
        let Some(job) = ended? else {
            let job = job.to_string();
            writeln!(
                self.io.err,
                "job {job} goes on; `weft job show {job}` shows it, `weft job cancel {job}` ends it"
            )?;
            return Ok(Exit::Other);
        };
        self.print(&job)?;
        let (kind, how) = match job.state {
            JobState::Failed => (Kind::Internal, "failed"),
            JobState::Cancelled => (Kind::Closed, "was cancelled"),
            _ => return Ok(Exit::Done),
        };
        let why = if job.note.is_empty() { String::new() } else { format!(": {}", job.note) };
        let message = format!("job {} ({}) {how}{why}", job.job, job.name);
        Err(ApiError::new(kind, message).offer(&StatusShow::of(&job.pool)).into())
    }

    /// The job when it has ended; `None` when nobody wants to wait any more.
    fn until_ended(
        &mut self,
        weft: &Client,
        job: &str,
        interrupted: &AtomicBool,
    ) -> Result<Option<JobInfo>, super::Failure> {
        let mut told = Told::new(self.io.progress && !self.cli.quiet);
        loop {
            let now = weft.perform(&JobShow { job: job.into() })?;
            if now.state.is_over() {
                told.bar.finish_and_clear();
                return Ok(Some(now));
            }
            if interrupted.load(Ordering::Acquire) {
                told.bar.abandon();
                return Ok(None);
            }
            if let Some(line) = told.tell(&now).filter(|_| !self.cli.quiet) {
                writeln!(self.io.err, "{line}")?;
            }
            std::thread::sleep(ASK_EVERY);
        }
    }
}

/// What people were told of a job so far.
struct Told {
    bar: ProgressBar,
    drawn: bool,
    last: Option<(JobState, f64)>,
}

impl Told {
    fn new(drawn: bool) -> Told {
        let target = if drawn { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let style =
            ProgressStyle::with_template("{prefix}  [{wide_bar}] {percent:>3} %  {msg}").expect("it is a template");
        let bar = ProgressBar::with_draw_target(Some(0), target).with_style(style.progress_chars("=> "));
        Told { bar, drawn, last: None }
    }

    /// Draws the bar; without one, the line to write, when there is something new to say.
    fn tell(&mut self, job: &JobInfo) -> Option<String> {
        if self.drawn {
            if self.last.is_none() {
                self.bar.set_prefix(format!("{} ({})", job.job, job.name));
                self.last = Some((job.state, 0.0));
            }
            self.bar.update(|bar| {
                bar.set_len(job.total.max(1));
                bar.set_pos(job.done);
            });
            self.bar.set_message(progress(job));
            return None;
        }
        let percent = job.percent();
        let new = self.last.is_none_or(|(state, told)| state != job.state || percent >= told + LINE_EVERY);
        new.then(|| {
            self.last = Some((job.state, percent));
            format!("{} ({}): {percent:.0} %, {}", job.job, job.name, progress(job))
        })
    }
}
