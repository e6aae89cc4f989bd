//! Files of the desk: read, written, listed, watched, streamed.
