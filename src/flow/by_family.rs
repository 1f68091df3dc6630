//! One value for each address family.

use crate::flow::{AnyKey, KeyV4, KeyV6};

/// A value for IPv4 and one for IPv6. They may differ in type, as lists of either family's keys do.
///
/// # Examples
///
/// ```
/// use flowpeel::flow::ByFamily;
///
/// let names = ByFamily { v4: "10.0.0.1", v6: "::1" };
/// assert_eq!(names.map(str::len).sum::<usize>(), 11);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByFamily<V4, V6 = V4> {
    /// The value for IPv4.
    pub v4: V4,
    /// The value for IPv6.
    pub v6: V6,
}

impl<V4, V6> ByFamily<V4, V6> {
    /// Both values by reference.
    pub fn as_ref(&self) -> ByFamily<&V4, &V6> {
        ByFamily { v4: &self.v4, v6: &self.v6 }
    }

    /// Both values by mutable reference.
    pub fn as_mut(&mut self) -> ByFamily<&mut V4, &mut V6> {
        ByFamily { v4: &mut self.v4, v6: &mut self.v6 }
    }
}

impl<T> ByFamily<T> {
    /// The results of a function of each value.
    pub fn map<U>(self, mut function: impl FnMut(T) -> U) -> ByFamily<U> {
        ByFamily { v4: function(self.v4), v6: function(self.v6) }
    }

    /// The sum of both values.
    pub fn sum<S: std::iter::Sum<T>>(self) -> S {
        [self.v4, self.v6].into_iter().sum()
    }
}

/// The connections of each family, each with what comes with it.
impl<T> FromIterator<(AnyKey, T)> for ByFamily<Vec<(KeyV4, T)>, Vec<(KeyV6, T)>> {
    fn from_iter<I: IntoIterator<Item = (AnyKey, T)>>(all: I) -> Self {
        let mut families = ByFamily { v4: Vec::new(), v6: Vec::new() };
        for (key, with) in all {
            match key {
                AnyKey::V4(key) => families.v4.push((key, with)),
                AnyKey::V6(key) => families.v6.push((key, with)),
            }
        }
        families
    }
}
