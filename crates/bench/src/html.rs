//! The report as one page: no script, nothing from elsewhere, light or dark as the reader has it.

use std::fmt::Write as _;

use super::plot::{self, Plot};
use super::report::{Figure, Report};
use super::table::{self, Table};

const STYLE: &str = "
:root{color-scheme:light dark;--page:#fbfbf9;--card:#fff;--line:#e2e2dc;--ink:#1d2126;--soft:#5c6570;
--grid:#e6e6e0;--guide:#8a939e;--good:#0b6e4f;--bad:#b3261e;LIGHT}
@media (prefers-color-scheme:dark){:root{--page:#14171a;--card:#1c2024;--line:#31373d;--ink:#e8eaec;--soft:#9aa4af;
--grid:#2c3238;--guide:#77818c;--good:#4fd1a1;--bad:#ff8a80;DARK}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1080px;margin:0 auto;padding:32px 20px 64px}
h1{font-size:26px;line-height:1.2;margin:0 0 4px}
h2{font-size:17px;margin:36px 0 10px}
p{margin:6px 0;max-width:78ch}
.soft{color:var(--soft)}
.warning{border-left:4px solid var(--bad);background:var(--card);padding:8px 14px;margin:14px 0;max-width:none}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(230px,1fr));gap:12px}
.figure{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 14px}
.figure b{display:block;font-size:26px;font-weight:600;line-height:1.25;font-variant-numeric:tabular-nums}
.figure code{font-size:12.5px;overflow-wrap:anywhere}
.figure p{font-size:13px;line-height:1.4}
.met{color:var(--good)}.missed{color:var(--bad)}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:14px}
figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px 12px 4px}
figcaption{font-weight:600;font-size:14px;padding:0 4px}
.legend{display:flex;flex-wrap:wrap;gap:2px 16px;padding:2px 4px 4px;font-size:13px;color:var(--soft)}
.legend i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px}
svg{display:block;width:100%;height:auto}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:8px}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{padding:5px 12px;text-align:left;border-bottom:1px solid var(--line);white-space:nowrap}
tr:last-child td{border-bottom:0}
th{font-weight:600;color:var(--soft)}
.number{text-align:right}
dl{display:grid;grid-template-columns:max-content 1fr;gap:3px 18px;margin:0}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
pre{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px 14px;overflow-x:auto;font-size:13px;margin:8px 0}
";

/// The whole page.
pub fn page(report: &Report) -> String {
    let style = STYLE
        .replace("LIGHT", &plot::colours(false))
        .replace("DARK", &plot::colours(true))
        + plot::STYLE;
    let title = escape(&report.title);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n\
         <h1>{title}</h1>\n<p class=\"soft\">{}</p>\n",
        escape(&report.medium)
    );
    for warning in &report.warnings {
        // Writing to a String does not fail.
        let _ = writeln!(page, "<p class=\"warning\">{}</p>", escape(warning));
    }
    figures(&mut page, &report.figures);
    plots(&mut page, &report.plots);
    for table in &report.tables {
        of_table(&mut page, table);
    }
    conditions(&mut page, report);
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn figures(page: &mut String, figures: &[Figure]) {
    page.push_str("<h2>Figures</h2>\n<div class=\"figures\">\n");
    for figure in figures {
        let value = figure
            .value
            .map_or("–".into(), |value| format!("{value:.3}"));
        let verdict = match (figure.goal, table::verdict(figure)) {
            (None, _) => String::new(),
            (Some(_), "") => format!("<span class=\"soft\">{}</span>", table::goal(figure)),
            (Some(_), verdict) => format!(
                "<span class=\"{verdict}\">{verdict}</span>: {}",
                table::goal(figure)
            ),
        };
        let _ = writeln!(
            page,
            "<div class=\"figure\"><code>{}</code><b>{value}</b>{verdict}<p class=\"soft\">{}</p></div>",
            figure.name,
            escape(figure.note.as_deref().unwrap_or_default())
        );
    }
    page.push_str("</div>\n");
}

fn plots(page: &mut String, plots: &[Plot]) {
    let drawn: Vec<(&Plot, String)> = plots
        .iter()
        .map(|plot| (plot, plot.svg()))
        .filter(|(_, svg)| !svg.is_empty())
        .collect();
    if drawn.is_empty() {
        return;
    }
    page.push_str("<h2>Plots</h2>\n<div class=\"plots\">\n");
    for (plot, svg) in drawn {
        let title = escape(&plot.title);
        let _ = write!(
            page,
            "<figure><figcaption>{title}</figcaption><div class=\"legend\">"
        );
        for (index, series) in plot.series.iter().enumerate() {
            let _ = write!(
                page,
                "<span><i style=\"background:{}\"></i>{}</span>",
                plot::colour_of(index),
                escape(&series.name)
            );
        }
        let svg = svg.replacen(
            "<svg ",
            &format!("<svg role=\"img\" aria-label=\"{title}\" "),
            1,
        );
        let _ = writeln!(page, "</div>{svg}</figure>");
    }
    page.push_str("</div>\n");
}

fn of_table(page: &mut String, table: &Table) {
    let _ = write!(
        page,
        "<h2>{}</h2>\n<div class=\"scroll\"><table>\n<thead><tr>",
        escape(&table.title)
    );
    let numbers = table.numbers();
    let class = |index: usize| match numbers.get(index) {
        Some(true) => " class=\"number\"",
        _ => "",
    };
    for (index, column) in table.columns.iter().enumerate() {
        let _ = write!(page, "<th{}>{}</th>", class(index), escape(column));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        page.push_str("<tr>");
        for (index, cell) in row.iter().enumerate() {
            let _ = write!(page, "<td{}>{}</td>", class(index), escape(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n");
}

fn conditions(page: &mut String, report: &Report) {
    page.push_str("<h2>How it was measured</h2>\n");
    for note in &report.notes {
        let _ = writeln!(page, "<p>{}</p>", escape(note));
    }
    page.push_str("<h2>Machine</h2>\n<dl>\n");
    for (name, value) in table::conditions(report) {
        let _ = writeln!(page, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(&value));
    }
    page.push_str("</dl>\n<h2>Commands</h2>\n");
    for command in &report.commands {
        let _ = writeln!(page, "<pre>{}</pre>", escape(command));
    }
    let version = escape(&report.machine.cryptline);
    let _ = writeln!(
        page,
        "<p class=\"soft\">Measured by cryptline {version}.</p>"
    );
}

/// Text that stands for itself in HTML, in attributes too.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_give_is_text_and_no_markup() {
        let mut report = Report::new("sweep", "<b>title</b>");
        report.medium = "\"><script>alert(1)</script>".into();
        report.commands = vec!["cryptline bench sweep --medium '<img>'".into()];
        let page = page(&report);
        for markup in ["<b>", "<script", "<img"] {
            assert!(!page.contains(markup), "{markup}");
        }
        assert!(page.contains("&lt;img&gt;"));
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let page = page(&Report::new("inline", "a title"));
        let outside = ["http://", "https://", "src=", "@import", "url("];
        for word in outside {
            assert!(!page.contains(word), "{word}");
        }
    }
}
