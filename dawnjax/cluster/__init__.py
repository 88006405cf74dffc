"""The processes of a run: how they meet, what ends them, how they are asked to stop."""
