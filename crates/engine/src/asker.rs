//! The thread that asks what a medium may never answer, for threads that have others to serve.
//!
//! ```text
//! question, and what finds its answer ─► thread, one after the other ─► whoever that tells
//! ```

use std::sync::{Mutex, mpsc};

use cryptline_sys::lock;

/// A thread that finds answers, once it was asked for one. When this is dropped, it answers what was asked, and ends.
pub struct Asker<Q> {
    name: &'static str,
    questions: Mutex<Option<mpsc::Sender<AskedQuestion<Q>>>>,
}

type AskedQuestion<Q> = (Q, Box<dyn FnOnce(Q) + Send>);

impl<Q: Send + 'static> Asker<Q> {
    /// A thread of this name, which the first question starts.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self { name, questions: Mutex::new(None) }
    }

    /// Has the thread call `find_out` with the question, which comes back where no thread can be started.
    pub fn ask(&self, question: Q, find_out: impl FnOnce(Q) + Send + 'static) -> Result<(), Q> {
        let mut questions = lock(&self.questions);
        let questions = match &mut *questions {
            Some(questions) => questions,
            empty => match self.start() {
                Some(sender) => empty.insert(sender),
                None => return Err(question),
            },
        };
        questions.send((question, Box::new(find_out))).map_err(|mpsc::SendError((question, _))| question)
    }

    fn start(&self) -> Option<mpsc::Sender<AskedQuestion<Q>>> {
        let (sender, asked) = mpsc::channel::<AskedQuestion<Q>>();
        let work = move || asked.into_iter().for_each(|(question, find_out)| find_out(question));
        let thread = std::thread::Builder::new().name(self.name.to_owned());
        thread.spawn(work).ok().map(|_| sender)
    }
}
