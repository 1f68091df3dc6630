//! Bytes of tables: fixed vectors, so that every machine writes and reads the same.

use super::*;
use crate::{Key, Refused};

#[test]
fn fields_are_little_endian_in_the_order_of_the_paper() {
    let hash = 0x0123_4567_89ab_cdef_0011_2233_4455_6677;
    let cell = <Sums<u64, u16, i16, u32>>::of(&0x0807_0605_0403_0201, 0x0b0a, hash, 1);
    let mut bytes = [0; 16];
    cell.write(&mut bytes);
    assert_eq!(bytes, [1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x0a, 0x0b, 0x67, 0x45, 0x23, 0x01]);
    let removed = <Sums<u8, (), i8, ()>>::of(&5, (), hash, -1);
    let mut bytes = [0; 2];
    removed.write(&mut bytes);
    assert_eq!(bytes, [255, 251]);
    assert_eq!(<[u8; 3]>::block(&[1, 2, 3], 0), 0x0102_0300 << 96);
    assert_eq!(0x0102_0304u32.block(0), 0x0403_0201 << 96);
    assert_eq!([7u8; 20].block(1), 0x0707_0707 << 96);
}

#[test]
fn a_table_has_the_same_bytes_everywhere() {
    let layout = Layout::new(Placement::Subtables { hash_count: 3 }, 7);
    let mut table = table::<Sums<u32, u8, i8, u16>>(layout);
    table.insert(&0x0403_0201, 9);
    table.remove(&77, 1);
    let hex: String = table.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        "0101020304098e6b0000000000000000ffb3ffffffff56b700b401030408e422000000000000000000b401030408e4220000000000000000"
    );
}

#[test]
fn bytes_of_another_length_are_refused() {
    let layout = subtables(3, 7);
    let table = table::<CheckedCell<u64>>(layout);
    let expected = 7 * 32;
    for found in [0, 1, expected - 1, expected + 1] {
        let refused = Table::<CheckedCell<u64>>::from_bytes(layout, table.hash().clone(), &vec![0; found]);
        assert_eq!(refused, Err(Refused::Length { expected, found }));
    }
}

proptest! {
    #[test]
    fn tables_come_back(layout in layouts(1..80), ops in ops(30, 0..40)) {
        let table = filled::<Sums<u64, u64, i32, u32, (ValueCheck, Squares)>>(layout, &ops);
        let bytes = table.to_bytes();
        prop_assert_eq!(Table::from_bytes(layout, table.hash().clone(), &bytes).unwrap(), table);
    }
}
