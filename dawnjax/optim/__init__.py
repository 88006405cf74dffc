"""How parameters are updated: update rules, schedules, loss scaling."""
