//! Many desks: states, store, scheduler, pools, life, limits and money.
