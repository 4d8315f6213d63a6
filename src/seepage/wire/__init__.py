"""What crosses the wire in each setting: views, knowledge, guesses and the secret."""
