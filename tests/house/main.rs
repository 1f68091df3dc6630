//! The rules of the house: which module may import which, what may be unsafe, and the licences of dependencies.

mod layers;
mod licences;
