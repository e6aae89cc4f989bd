//! Stopped desks in object storage: streamed, checksummed, and back.
