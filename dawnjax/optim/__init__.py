"""Updates of parameters: update rules, schedules, loss scaling."""
