//! Building HTML so that a study's text cannot become markup: only string literals are written as they
//! are, everything else is escaped on its way in.

use serde::Serialize;

/// HTML under construction.
#[derive(Default)]
pub(super) struct Html(String);

impl Html {
    /// Appends markup, which can only be a literal of this program (or an asset compiled into it).
    pub(super) fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Appends text, escaped for element content and for quoted attributes.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        for character in text.chars() {
            match character {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                // Control characters other than white space are not allowed in HTML.
                c if c.is_control() && !matches!(c, '\n' | '\t' | '\r') => self.0.push('\u{fffd}'),
                c => self.0.push(c),
            }
        }
        self
    }

    /// Appends a number with `decimals` digits after the point; a dash where it is not finite.
    pub(super) fn number(&mut self, number: f64, decimals: usize) -> &mut Self {
        if number.is_finite() { self.text(&format!("{number:.decimals$}")) } else { self.raw("–") }
    }

    /// Appends a share of 1 as a percentage, which is never broken.
    pub(super) fn percent(&mut self, share: f64, decimals: usize) -> &mut Self {
        self.number(share * 100.0, decimals).raw("\u{a0}%")
    }

    /// Appends a sentence whose percentages and options are never broken.
    pub(super) fn sentence(&mut self, text: &str) -> &mut Self {
        self.with_options(&text.replace(" %", "\u{a0}%"))
    }

    /// Appends text in which options as `--bitmap-chunk` stay whole: a line may end at their hyphens otherwise.
    fn with_options(&mut self, text: &str) -> &mut Self {
        let mut rest = text;
        while let Some(at) = rest.find("--") {
            let length =
                rest[at..].find(|c: char| c != '-' && !c.is_ascii_alphanumeric()).unwrap_or(rest.len() - at);
            self.text(&rest[..at]).raw("<span class=\"option\">").text(&rest[at..at + length]).raw("</span>");
            rest = &rest[at + length..];
        }
        self.text(rest)
    }

    /// Appends a text for the terminal, where back-ticks mark what is typed or named.
    pub(super) fn marked(&mut self, text: &str) -> &mut Self {
        let parts: Vec<&str> = text.split('`').collect();
        if parts.len().is_multiple_of(2) {
            return self.with_options(text);
        }
        for (index, part) in parts.into_iter().enumerate() {
            if index % 2 == 0 {
                self.with_options(part);
            } else {
                self.raw("<code>").with_options(part).raw("</code>");
            }
        }
        self
    }

    /// Appends a value as JSON that can stand in a `<script>` element: nothing in it can close the element
    /// or open a comment, because `<`, `>` and `&` are written as JSON escapes.
    pub(super) fn script_json<T: Serialize>(&mut self, value: &T) -> Result<&mut Self, serde_json::Error> {
        for character in serde_json::to_string(value)?.chars() {
            match character {
                '<' => self.0.push_str("\\u003c"),
                '>' => self.0.push_str("\\u003e"),
                '&' => self.0.push_str("\\u0026"),
                '\u{2028}' => self.0.push_str("\\u2028"),
                '\u{2029}' => self.0.push_str("\\u2029"),
                c => self.0.push(c),
            }
        }
        Ok(self)
    }

    /// The finished document.
    pub(super) fn finish(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_for_content_and_attributes() {
        let mut html = Html::default();
        html.text("<b a=\"x\" b='y'>&\u{0}");
        assert_eq!(html.finish(), "&lt;b a=&quot;x&quot; b=&#39;y&#39;&gt;&amp;\u{fffd}");
    }

    #[test]
    fn json_in_a_script_keeps_its_meaning_and_cannot_close_the_script() {
        let nasty = "</script><!--<script>&\u{2028}";
        let mut html = Html::default();
        html.script_json(&nasty).unwrap();
        let json = html.finish();
        assert!(!json.contains(['<', '>', '&', '\u{2028}']));
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), nasty);
    }

    #[test]
    fn what_stands_between_back_ticks_is_code() {
        let marked = |text: &str| {
            let mut html = Html::default();
            html.marked(text);
            html.finish()
        };
        assert_eq!(marked("as `a<b` and `c` show"), "as <code>a&lt;b</code> and <code>c</code> show");
        assert_eq!(marked("a ` alone"), "a ` alone");
    }

    #[test]
    fn options_are_never_broken() {
        let of = |write: fn(&mut Html)| {
            let mut html = Html::default();
            write(&mut html);
            html.finish()
        };
        let sentence = of(|html| {
            html.sentence("take 5 (--replicates 5), 5 % <--bitmap-chunk=64M");
        });
        let option = |name: &str| format!("<span class=\"option\">{name}</span>");
        let expected =
            format!("take 5 ({} 5), 5\u{a0}% &lt;{}=64M", option("--replicates"), option("--bitmap-chunk"));
        assert_eq!(sentence, expected);
        let marked = of(|html| {
            html.marked("as `x --on model` says --x");
        });
        assert_eq!(marked, format!("as <code>x {} model</code> says {}", option("--on"), option("--x")));
    }

    #[test]
    fn a_number_that_is_not_finite_is_a_dash() {
        let mut html = Html::default();
        html.number(f64::NAN, 2).number(f64::INFINITY, 0).percent(0.5, 1);
        assert_eq!(html.finish(), "––50.0\u{a0}%");
    }
}
