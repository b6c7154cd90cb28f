"""pando-cluster: a Pando cluster on many hosts. Start with commands.py."""
