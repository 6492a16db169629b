"""Plans and rules in words."""
