//! Lists held against what the kernel knows: each difference with its reason, or without one.
//!
//! An [`Audit`] is given every list as it is written, and reads what the kernel has open at that moment on a thread of
//! its own. A list and a table that are not read at the same instant always differ a little, so a difference is judged
//! by what the kernel recorded meanwhile, or by the next list ([`Comparison`]).

mod comparison;
mod kernel_side;
mod thread;

pub use comparison::{AuditedList, Comparison, Difference, KernelSays, KernelTable, ROUND_TRIPS_NS, Reason};
pub use kernel_side::Against;
pub use thread::{Audit, AuditConfig, Audited, Report};
