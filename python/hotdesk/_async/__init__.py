"""The async client. `hotdesk._sync` is made from this by `make_sync.py`; change this one."""
