"""What people have today: greedy propagation, on the same graph, with the same rows and prices as the planner."""
