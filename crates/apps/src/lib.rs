//! Applications on the data path: the router.
