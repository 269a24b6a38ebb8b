//! The annotation of an expensive access, and its two meanings.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use crate::prefetch;

/// How a lookup waits for memory. A lookup is written over any `Memory` and chosen by the caller: [`Direct`]
/// for the plain version, [`Switched`] inside [`crate::map_switched`].
pub trait Memory: Copy {
    /// What [`Memory::touch`] gives to be awaited.
    type Touch: Future<Output = ()>;

    /// Says that `place` is about to be read and is probably in no cache. Await it right away, then read.
    fn touch<T: ?Sized>(self, place: &T) -> Self::Touch;

    /// The same for two places at once, at the cost of one switch: the two buckets of a cuckoo table.
    fn touch_both<T: ?Sized, U: ?Sized>(self, first: &T, second: &U) -> Self::Touch;
}

/// Waits where it is: the plain version. Nothing is prefetched, nothing is put aside.
#[derive(Debug, Clone, Copy, Default)]
pub struct Direct;

impl Memory for Direct {
    type Touch = core::future::Ready<()>;

    #[inline(always)]
    fn touch<T: ?Sized>(self, _: &T) -> Self::Touch {
        core::future::ready(())
    }

    #[inline(always)]
    fn touch_both<T: ?Sized, U: ?Sized>(self, _: &T, _: &U) -> Self::Touch {
        core::future::ready(())
    }
}

/// Prefetches and lets the other lookups of the batch go on: G-Opt's `PSS`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Switched;

impl Memory for Switched {
    type Touch = Touch;

    #[inline(always)]
    fn touch<T: ?Sized>(self, place: &T) -> Touch {
        prefetch(place);
        Touch { switched: false }
    }

    #[inline(always)]
    fn touch_both<T: ?Sized, U: ?Sized>(self, first: &T, second: &U) -> Touch {
        prefetch(first);
        prefetch(second);
        Touch { switched: false }
    }
}

/// Pending once: the switch to the next lookup.
///
/// It registers no waker: the caller must poll again by itself, as [`crate::map_switched`] does.
#[derive(Debug)]
#[must_use = "a touch does nothing unless awaited"]
pub struct Touch {
    switched: bool,
}

impl Future for Touch {
    type Output = ();

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.switched {
            return Poll::Ready(());
        }
        self.switched = true;
        Poll::Pending
    }
}
