"""The default: the choice of a method, the methods that it chooses from, and what they release."""
