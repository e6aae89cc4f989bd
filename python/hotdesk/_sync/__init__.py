# Made by make_sync.py from hotdesk/_async/__init__.py; change that one.
"""The sync client."""
