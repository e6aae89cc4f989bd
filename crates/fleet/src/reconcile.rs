//! Makes what is equal to what should be.
