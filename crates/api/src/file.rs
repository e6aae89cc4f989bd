//! Files of a desk: entries, listings, changes.
