//! Keys: made, hashed, scoped, rotated, revoked.
