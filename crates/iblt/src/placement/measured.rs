//! Measured curves: for numbers of items, the cells an item at which a tenth, a hundredth, a thousandth and a
//! ten-thousandth of the tables do not list.
//!
//! Every number comes from simulations at growing numbers of cells, each of up to 400,000 tables or until a hundred had
//! failed (some hundreds of tables from a hundred thousand items on), interpolated between the logarithms of the two
//! nearest. Where too few tables were tried for a failure rate, the curve is extrapolated: by its own slope, and for
//! [`FIVE_COUPLED`] by a normal distribution through what was measured, rounded up.
//! [`Simulation`](super::Simulation) repeats the measurements.

use super::{Degrees, Placement};

/// The shares of failing tables that are tabulated.
pub(super) const FAILURES: [f64; 4] = [1e-1, 1e-2, 1e-3, 1e-4];

/// The measured curve of one placement.
pub(super) struct Curve {
    pub(super) placement: Placement,
    /// Whether the curve may be extended to fewer items than were measured.
    pub(super) is_for_fewer: bool,
    /// Whether the curve may be extended to more items.
    pub(super) is_for_more: bool,
    /// Numbers of items, and the cells an item for each of [`FAILURES`].
    pub(super) rows: &'static [(f64, [f64; FAILURES.len()])],
}

/// Neighbouring segments for hundreds of thousands of keys.
const FOUR_COUPLED: Placement = Placement::Coupled { hash_count: 4, segment_count: 150, half_ends: false };

/// Neighbouring segments for millions of keys.
const FIVE_COUPLED: Placement = Placement::Coupled { hash_count: 5, segment_count: 200, half_ends: false };

/// Every placement that was measured.
pub(super) const CURVES: &[Curve] = &[
    Curve {
        placement: Placement::Distinct { hash_count: 4 },
        is_for_fewer: true,
        is_for_more: false,
        rows: &[
            (10.0, [1.7355, 2.3839, 3.4507, 5.9981]),
            (20.0, [1.6005, 1.9554, 2.5649, 4.0880]),
            (50.0, [1.4845, 1.6166, 1.7946, 2.5472]),
            (100.0, [1.4186, 1.4942, 1.5692, 1.9636]),
            (200.0, [1.3798, 1.4318, 1.4741, 1.5281]),
            (500.0, [1.3469, 1.3796, 1.4030, 1.4303]),
            (1000.0, [1.3282, 1.3504, 1.3670, 1.3848]),
            (2000.0, [1.3196, 1.3356, 1.3528, 1.3713]),
            (10000.0, [1.3055, 1.3146, 1.3240, 1.3334]),
        ],
    },
    Curve {
        placement: Placement::Distinct { hash_count: 5 },
        is_for_fewer: true,
        is_for_more: false,
        rows: &[
            (10.0, [1.9091, 2.3028, 2.7672, 4.0710]),
            (20.0, [1.7584, 1.9749, 2.1919, 2.7567]),
            (50.0, [1.6143, 1.7355, 1.8383, 1.9476]),
            (100.0, [1.5555, 1.6323, 1.6971, 1.7569]),
            (200.0, [1.5161, 1.5625, 1.5985, 1.6310]),
            (500.0, [1.4783, 1.5088, 1.5325, 1.5538]),
        ],
    },
    Curve {
        placement: Placement::Distinct { hash_count: 6 },
        is_for_fewer: true,
        is_for_more: false,
        rows: &[
            (10.0, [2.1056, 2.4535, 2.7725, 3.3744]),
            (20.0, [1.9222, 2.1589, 2.3263, 2.5640]),
            (50.0, [1.7952, 1.9049, 2.0044, 2.0883]),
            (100.0, [1.7104, 1.7914, 1.8575, 1.9113]),
        ],
    },
    Curve {
        placement: Placement::Irregular(Degrees::FEW),
        is_for_fewer: false,
        is_for_more: false,
        rows: &[
            (100.0, [1.3512, 1.5198, 2.4481, 5.6053]),
            (200.0, [1.2777, 1.3741, 2.0131, 5.1551]),
            (500.0, [1.2079, 1.2612, 1.4558, 2.9089]),
            (1000.0, [1.1826, 1.2151, 1.2613, 2.4895]),
            (2000.0, [1.1598, 1.1823, 1.2049, 1.5630]),
            (5000.0, [1.1403, 1.1560, 1.1673, 1.1775]),
            (10000.0, [1.1324, 1.1431, 1.1508, 1.1582]),
            (20000.0, [1.1262, 1.1345, 1.1410, 1.1489]),
        ],
    },
    Curve {
        placement: Placement::Irregular(Degrees::MANY),
        is_for_fewer: false,
        is_for_more: false,
        rows: &[
            (500.0, [1.1920, 1.2523, 1.6774, 3.6322]),
            (1000.0, [1.1596, 1.1971, 1.2879, 2.8314]),
            (2000.0, [1.1362, 1.1635, 1.1931, 1.4717]),
            (5000.0, [1.1178, 1.1343, 1.1478, 1.1619]),
            (10000.0, [1.1082, 1.1207, 1.1332, 1.1459]),
            (20000.0, [1.1021, 1.1108, 1.1164, 1.1232]),
            (50000.0, [1.0973, 1.1036, 1.1105, 1.1172]),
            (100000.0, [1.0944, 1.0988, 1.1053, 1.1109]),
            (200000.0, [1.0927, 1.0955, 1.0989, 1.1021]),
        ],
    },
    Curve {
        placement: FOUR_COUPLED,
        is_for_fewer: false,
        is_for_more: false,
        rows: &[
            (100000.0, [1.1101, 1.1188, 1.1255, 1.1331]),
            (200000.0, [1.0913, 1.0979, 1.1018, 1.1064]),
            (500000.0, [1.0742, 1.0837, 1.0924, 1.1012]),
            (1000000.0, [1.0668, 1.0712, 1.0769, 1.0826]),
        ],
    },
    Curve {
        placement: FIVE_COUPLED,
        is_for_fewer: false,
        is_for_more: true,
        rows: &[
            (200000.0, [1.0855, 1.0918, 1.0968, 1.1015]),
            (500000.0, [1.0645, 1.0690, 1.0725, 1.0760]),
            (1000000.0, [1.0550, 1.0590, 1.0625, 1.0660]),
            (2000000.0, [1.0475, 1.0510, 1.0540, 1.0570]),
        ],
    },
    Curve {
        placement: Placement::Subtables { hash_count: 3 },
        is_for_fewer: false,
        is_for_more: false,
        rows: &[
            (1000.0, [1.2617, 1.2969, 3.3724, 8.5075]),
            (2000.0, [1.2493, 1.2670, 1.6082, 11.8903]),
            (5000.0, [1.2377, 1.2483, 1.3177, 1.8580]),
            (10000.0, [1.2328, 1.2408, 1.2496, 1.2588]),
            (20000.0, [1.2296, 1.2345, 1.2382, 1.2433]),
            (50000.0, [1.2266, 1.2300, 1.2323, 1.2350]),
            (100000.0, [1.2250, 1.2275, 1.2299, 1.2326]),
        ],
    },
    Curve {
        placement: Placement::Subtables { hash_count: 4 },
        is_for_fewer: true,
        is_for_more: true,
        rows: &[
            (10.0, [1.9972, 3.2815, 5.9413, 10.9151]),
            (20.0, [1.6746, 2.4835, 4.2541, 7.5289]),
            (50.0, [1.4868, 1.6432, 2.6869, 4.6420]),
            (100.0, [1.4173, 1.5036, 1.8578, 3.2322]),
            (200.0, [1.3785, 1.4335, 1.4899, 2.3142]),
            (500.0, [1.3440, 1.3780, 1.4021, 1.4975]),
            (1000.0, [1.3289, 1.3505, 1.3670, 1.3810]),
            (2000.0, [1.3186, 1.3320, 1.3418, 1.3512]),
            (5000.0, [1.3090, 1.3180, 1.3236, 1.3303]),
            (10000.0, [1.3044, 1.3110, 1.3153, 1.3200]),
            (20000.0, [1.3017, 1.3061, 1.3104, 1.3155]),
            (50000.0, [1.2991, 1.3020, 1.3034, 1.3058]),
            (100000.0, [1.2979, 1.3002, 1.3028, 1.3054]),
        ],
    },
    Curve {
        placement: Placement::Subtables { hash_count: 5 },
        is_for_fewer: true,
        is_for_more: true,
        rows: &[
            (10.0, [2.0497, 2.6174, 4.2817, 6.7518]),
            (20.0, [1.7705, 2.0739, 2.8545, 4.5212]),
            (50.0, [1.6140, 1.7387, 1.9013, 2.5719]),
            (100.0, [1.5551, 1.6344, 1.6992, 1.7927]),
            (200.0, [1.5116, 1.5621, 1.6035, 1.6358]),
            (500.0, [1.4782, 1.5085, 1.5316, 1.5602]),
            (1000.0, [1.4620, 1.4831, 1.5002, 1.5153]),
            (2000.0, [1.4498, 1.4650, 1.4763, 1.4860]),
            (5000.0, [1.4399, 1.4500, 1.4570, 1.4694]),
            (10000.0, [1.4357, 1.4418, 1.4488, 1.4557]),
            (20000.0, [1.4328, 1.4374, 1.4416, 1.4459]),
            (50000.0, [1.4291, 1.4328, 1.4357, 1.4390]),
            (100000.0, [1.4282, 1.4318, 1.4354, 1.4390]),
        ],
    },
    Curve {
        placement: Placement::Subtables { hash_count: 6 },
        is_for_fewer: true,
        is_for_more: false,
        rows: &[
            (10.0, [2.1918, 2.6382, 3.6144, 5.0390]),
            (20.0, [1.9141, 2.1592, 2.4446, 3.2671]),
            (50.0, [1.7748, 1.9037, 2.0063, 2.1262]),
            (100.0, [1.7144, 1.7896, 1.8516, 1.9072]),
            (200.0, [1.6696, 1.7203, 1.7661, 1.8038]),
            (500.0, [1.6275, 1.6609, 1.6852, 1.7031]),
            (1000.0, [1.6081, 1.6317, 1.6488, 1.6715]),
        ],
    },
];
