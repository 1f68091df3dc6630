//! Every limit, with its name and its reason; relations between limits are asserted at compile time.
