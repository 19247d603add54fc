//! The one palette of both kinds of pictures: colours that people with any colour vision tell apart, and that
//! keep a contrast of 3:1 on white as well as on the dark page. Shapes say the same a second time.

/// A colour as red, green, blue.
pub(crate) type Colour = (u8, u8, u8);

/// Series, in this order: blue, vermilion, green, purple, olive, cyan, slate. Chosen after Okabe and Ito's set, darkened
/// where theirs vanish on white.
pub(crate) const SERIES: [Colour; 7] = [
    (0x2f, 0x78, 0xc4),
    (0xd9, 0x5f, 0x0e),
    (0x14, 0x93, 0x6c),
    (0xa8, 0x5b, 0xa5),
    (0x92, 0x7c, 0x1e),
    (0x17, 0x8f, 0xab),
    (0x6f, 0x7a, 0x86),
];

/// Text and published marks of pictures: readable on white and on the dark page.
pub(crate) const INK: Colour = (0x6b, 0x74, 0x80);

/// The edge of a published mark upon a bar.
pub(crate) const OUTLINE: Colour = (0x2b, 0x33, 0x3b);

/// Grid lines and axes.
pub(crate) const LINE: Colour = (0xc9, 0xce, 0xd4);

/// The two ends of a heat map, from low to high: pale to deep blue.
const HEAT: (Colour, Colour) = ((0xdf, 0xea, 0xf6), (0x14, 0x4a, 0x86));

/// The series' colour; they repeat after seven.
pub(crate) fn series(number: usize) -> Colour {
    SERIES[number % SERIES.len()]
}

/// The heat map's colour at `share`, 0 to 1.
pub(crate) fn heat(share: f64) -> Colour {
    let mix = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * share) as u8;
    let (low, high) = HEAT;
    (mix(low.0, high.0), mix(low.1, high.1), mix(low.2, high.2))
}

/// `#2f78c4`.
pub(crate) fn hex(colour: Colour) -> String {
    format!("#{:02x}{:02x}{:02x}", colour.0, colour.1, colour.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn luminance(colour: Colour) -> f64 {
        let channel = |c: u8| {
            let c = f64::from(c) / 255.0;
            if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(colour.0) + 0.7152 * channel(colour.1) + 0.0722 * channel(colour.2)
    }

    fn contrast(a: Colour, b: Colour) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn every_colour_stands_out_on_both_pages() {
        for colour in SERIES {
            assert!(contrast(colour, (255, 255, 255)) >= 3.0, "{} on white", hex(colour));
            assert!(contrast(colour, (0x14, 0x17, 0x1b)) >= 3.0, "{} on dark", hex(colour));
        }
        assert!(contrast(INK, (255, 255, 255)) >= 4.5);
        assert!(contrast(INK, (0x14, 0x17, 0x1b)) >= 3.5);
    }
}
