//! What a follower leaves for a stage behind `flow`: one for each pipeline and worker.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a follower and a stage share.
pub type Shared<S> = Arc<Mutex<S>>;

/// The lock of it; what a panic left behind is the rest of a chunk.
pub fn lock<S>(shared: &Shared<S>) -> MutexGuard<'_, S> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// By pipeline and worker: what is shared there.
#[derive(Debug)]
pub struct ByWorker<S>(Mutex<Vec<(String, usize, Shared<S>)>>);

impl<S> Default for ByWorker<S> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<S> ByWorker<S> {
    /// What is shared by a pipeline and worker. It stays the same when other stages take over.
    pub fn of(&self, pipeline: &str, worker: usize) -> Shared<S>
    where
        S: Default,
    {
        let mut all = self.lock();
        let found = all.iter().find(|own| own.0 == pipeline && own.1 == worker);
        if let Some((.., shared)) = found {
            return shared.clone();
        }
        let shared = Shared::default();
        all.push((pipeline.to_owned(), worker, shared.clone()));
        shared
    }

    /// The same, where [`Self::add`] has added it.
    pub fn find(&self, pipeline: &str, worker: usize) -> Option<Shared<S>> {
        let all = self.lock();
        let found = all.iter().find(|own| own.0 == pipeline && own.1 == worker);
        found.map(|(.., shared)| shared.clone())
    }

    /// Adds what a pipeline and worker share.
    pub fn add(&self, pipeline: &str, worker: usize, shared: Shared<S>) {
        self.lock().push((pipeline.to_owned(), worker, shared));
    }

    /// All of them.
    pub fn all(&self) -> Vec<Shared<S>> {
        self.lock().iter().map(|(.., shared)| shared.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(String, usize, Shared<S>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
