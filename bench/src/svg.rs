//! Pictures as SVG: lines, boxes, dots and text by pixels, which is all that charts need.

use std::fmt::Write;

/// Red, green, blue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Colour(pub(crate) u8, pub(crate) u8, pub(crate) u8);

/// Which part of a text is at its place.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Side {
    Left,
    Centre,
    Right,
}

/// A picture that grows.
#[derive(Debug)]
pub(crate) struct Picture {
    text: String,
}

impl Picture {
    /// White paper.
    pub(crate) fn new(width: i32, height: i32) -> Self {
        let text = format!(
            "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             xmlns=\"http://www.w3.org/2000/svg\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#FFFFFF\"/>\n"
        );
        Self { text }
    }

    /// The whole as a file.
    pub(crate) fn finish(mut self) -> String {
        self.text += "</svg>\n";
        self.text
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.text, "{element}");
    }

    /// A filled box between two corners, the upper left one first.
    pub(crate) fn bar(&mut self, [from, to]: [(i32, i32); 2], colour: Colour, opacity: f64) {
        let (width, height) = ((to.0 - from.0).max(0), (to.1 - from.1).max(0));
        self.add(format_args!(
            "<rect x=\"{}\" y=\"{}\" width=\"{width}\" height=\"{height}\" opacity=\"{opacity}\" fill=\"{}\"/>",
            from.0,
            from.1,
            colour.hex()
        ));
    }

    /// A line through points.
    pub(crate) fn line(&mut self, points: &[(i32, i32)], colour: Colour, opacity: f64, width: u32) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x},{y}")).collect();
        self.add(format_args!(
            "<polyline fill=\"none\" opacity=\"{opacity}\" stroke=\"{}\" stroke-width=\"{width}\" points=\"{}\"/>",
            colour.hex(),
            points.join(" ")
        ));
    }

    /// A filled dot.
    pub(crate) fn dot(&mut self, (x, y): (i32, i32), radius: u32, colour: Colour) {
        let fill = colour.hex();
        self.add(format_args!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" fill=\"{fill}\"/>"));
    }

    /// A line of text, its middle at that height.
    pub(crate) fn write(
        &mut self,
        text: &str,
        (x, y): (i32, i32),
        (size, colour): (i32, Colour),
        side: Side,
    ) {
        let anchor = match side {
            Side::Left => "start",
            Side::Centre => "middle",
            Side::Right => "end",
        };
        self.add(format_args!(
            "<text x=\"{x}\" y=\"{y}\" dy=\"0.35em\" text-anchor=\"{anchor}\" font-family=\"sans-serif\" \
             font-size=\"{size}\" fill=\"{}\">{}</text>",
            colour.hex(),
            escaped(text)
        ));
    }
}

impl Colour {
    fn hex(self) -> String {
        format!("#{:02X}{:02X}{:02X}", self.0, self.1, self.2)
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
