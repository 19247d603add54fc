//! The one palette of both kinds of pictures: colours that people with any colour vision tell apart, and that
//! keep a contrast of 3:1 on white as well as on the dark page. Shapes say the same a second time.

/// A colour as red, green, blue.
pub(crate) type Colour = (u8, u8, u8);

/// Series, in this order: blue, vermilion, green, purple, olive, cyan, slate, raspberry, brown, moss. Chosen after Okabe
/// and Ito's set, darkened where theirs vanish on white. The first two are those of targets, slate that of published
/// values.
pub(crate) const SERIES: [Colour; 10] = [
    (0x2f, 0x78, 0xc4),
    (0xd9, 0x5f, 0x0e),
    (0x14, 0x93, 0x6c),
    (0xa8, 0x5b, 0xa5),
    (0x92, 0x7c, 0x1e),
    (0x17, 0x8f, 0xab),
    (0x6f, 0x7a, 0x86),
    (0xc2, 0x47, 0x7a),
    (0xa0, 0x69, 0x4b),
    (0x6a, 0x8f, 0x23),
];

/// Place in the palette of published values.
pub(crate) const PUBLISHED: usize = 6;
/// Places in the palette of a factor's levels: no target and no published value has them.
const LEVELS: [usize; 7] = [2, 3, 4, 5, 7, 8, 9];

/// The place in the palette of a factor's level; they repeat after seven.
pub(crate) fn level_place(level: usize) -> usize {
    LEVELS[level % LEVELS.len()]
}

/// Text and published marks of pictures: readable on white and on the dark page.
pub(crate) const INK: Colour = (0x6b, 0x74, 0x80);

/// The edge of a published mark upon a bar.
pub(crate) const OUTLINE: Colour = (0x2b, 0x33, 0x3b);

/// Grid lines and axes.
pub(crate) const LINE: Colour = (0xc9, 0xce, 0xd4);

/// The two ends of a heat map, from low to high: pale to deep green, which no target has.
const HEAT: (Colour, Colour) = ((0xe3, 0xef, 0xea), (0x12, 0x55, 0x4a));

/// The series' colour; they repeat after ten.
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
    fn levels_have_no_colour_of_a_target_or_of_published_values() {
        let taken = [0, 1, PUBLISHED];
        assert!((0..20).map(level_place).all(|place| !taken.contains(&place)));
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
