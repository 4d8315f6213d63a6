"""Which guessed record stands for which true one: optimal one-to-one row matching."""
