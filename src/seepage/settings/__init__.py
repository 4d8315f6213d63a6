"""The settings that are audited: a plug-in each."""
