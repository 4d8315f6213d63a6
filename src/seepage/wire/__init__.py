"""Views, knowledge and guesses of each setting, and the secret."""
