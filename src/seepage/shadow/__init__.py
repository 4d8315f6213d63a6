"""Many models trained at once: joint models and the shadow models of an attacker."""
