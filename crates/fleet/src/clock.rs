//! Time, so that tests can turn it.
