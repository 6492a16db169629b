"""What the tool says about problems that people have met: one file a scenario."""
