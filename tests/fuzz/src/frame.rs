//! Frames of any bytes, under every link type that is read.
//!
//! What enters: one frame. What leaves: nothing; a frame cut short gives what the whole one gives, or says that it is
//! cut.

use flowpeel::parse::{LinkType, Unusable, parse_captured, parse_frame};

/// Runs one frame.
pub fn run(frame: &[u8]) {
    for link in LinkType::SUPPORTED {
        let whole = parse_frame(link, frame);
        assert_ne!(whole, Err(Unusable::UnsupportedLink));
        assert_ne!(whole, Err(Unusable::CutShort), "nothing is cut of a whole frame");
        if let Ok(segment) = whole {
            for tag in [0, 1, 0x0fff, 0xffff] {
                assert!(segment.behind_tag(tag).vlan.iter().all(|tag| tag <= 0x0fff));
            }
        }
        for size in 0..frame.len() {
            let cut = parse_captured(link, &frame[..size], frame.len());
            assert!(cut == whole || cut == Err(Unusable::CutShort), "{link} cut at {size}: {cut:?} for {whole:?}");
        }
    }
    let other = LinkType(frame.iter().fold(0, |number, &byte| number << 8 | u32::from(byte)));
    assert_eq!(parse_frame(other, frame) == Err(Unusable::UnsupportedLink), !other.is_supported());
}
