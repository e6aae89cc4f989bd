//! Admission: what may be made, before anything is spent.
