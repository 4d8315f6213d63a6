"""Forms of captured messages on disk: what is written and read, before anything is made of it."""
