//! A list that is searched, sorted and cut into pages here, so that a browser never gets ten thousand rows.

use maud::{Markup, html};

use super::number::count;
use super::text::visible;
use crate::query::{Query, link};

/// Rows of a page.
pub(crate) const ROWS_MAX: usize = 100;

/// Which part of a list is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Listing {
    path: &'static str,
    /// As it is seen: names are compared as they are seen, so that what is copied from a page is found.
    pub(crate) search: String,
    pub(crate) sort: &'static str,
    pub(crate) descending: bool,
    page: usize,
    /// Further parameters that links keep.
    kept: Vec<(&'static str, String)>,
}

/// A column that a list can be sorted by.
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    pub(crate) is_number: bool,
}

impl Listing {
    /// What a request asks of the list under `path`, which is sorted by the first column otherwise. Numbers begin with the
    /// largest.
    pub(crate) fn of(
        path: &'static str,
        columns: &'static [Column],
        query: &Query,
        kept: &[&'static str],
    ) -> Listing {
        let asked = query.get("sort");
        let column =
            columns.iter().find(|column| Some(column.name) == asked).unwrap_or(&columns[0]);
        let kept = kept.iter().filter_map(|name| Some((*name, query.get(name)?.to_owned())));
        Listing {
            path,
            search: visible(query.get("q").unwrap_or_default().trim()).into_owned(),
            sort: column.name,
            descending: match query.get("order") {
                Some("desc") => true,
                Some("asc") => false,
                _ => column.is_number,
            },
            page: usize::try_from(query.number("page").unwrap_or(1).max(1)).unwrap_or(1),
            kept: kept.collect(),
        }
    }

    /// Whether a name fits the search.
    pub(crate) fn finds(&self, name: &str) -> bool {
        self.search.is_empty() || visible(name).to_lowercase().contains(&self.search.to_lowercase())
    }

    fn link(&self, sort: &str, descending: bool, page: usize) -> String {
        let (order, page) = (if descending { "desc" } else { "asc" }, page.to_string());
        let mut parameters =
            vec![("q", &*self.search), ("sort", sort), ("order", order), ("page", &*page)];
        parameters.extend(self.kept.iter().map(|(name, value)| (*name, &**value)));
        link(self.path, &parameters)
    }

    /// The rows of the page that is asked for, out of all that fit; the last page if there is none such.
    pub(crate) fn rows<'a, T>(&self, all: &'a [T]) -> &'a [T] {
        let page = self.page.min(pages(all.len()));
        let from = (page - 1) * ROWS_MAX;
        &all[from.min(all.len())..(from + ROWS_MAX).min(all.len())]
    }

    /// The heads of the columns, each a link that sorts by it.
    pub(crate) fn heads(&self, columns: &'static [Column]) -> Markup {
        html! {
            @for column in columns {
                @let is_sorted = column.name == self.sort;
                @let descending = if is_sorted { !self.descending } else { column.is_number };
                th scope="col" class=[column.is_number.then_some("number")]
                    aria-sort=[is_sorted.then_some(if self.descending { "descending" } else { "ascending" })] {
                    a href=(self.link(column.name, descending, 1)) {
                        (column.label)
                        @if is_sorted { span aria-hidden="true" { (if self.descending { " ↓" } else { " ↑" }) } }
                    }
                }
            }
        }
    }

    /// The field to search in, with what else the list can be narrowed by.
    pub(crate) fn search_form(&self, label: &str, besides: Markup) -> Markup {
        html! {
            form.search method="get" action=(self.path) role="search" {
                label for="q" { (label) }
                input #q type="search" name="q" value=(self.search) autocomplete="off" spellcheck="false";
                input type="hidden" name="sort" value=(self.sort);
                input type="hidden" name="order" value=(if self.descending { "desc" } else { "asc" });
                (besides)
                button type="submit" { "Search" }
            }
        }
    }

    /// Where one is in the list, and the way to the other pages.
    pub(crate) fn pager(&self, all: usize) -> Markup {
        let (pages, page) = (pages(all), self.page.min(pages(all)));
        let from = (page - 1) * ROWS_MAX;
        html! {
            @if pages > 1 {
                nav.pager aria-label="Pages of the list" {
                    @if page > 1 { a rel="prev" href=(self.link(self.sort, self.descending, page - 1)) { "Previous" } }
                    span { (count(from as i64 + 1)) "–" (count((from + ROWS_MAX).min(all) as i64)) " of " (count(all as i64)) }
                    @if page < pages { a rel="next" href=(self.link(self.sort, self.descending, page + 1)) { "Next" } }
                }
            }
        }
    }
}

fn pages(rows: usize) -> usize {
    rows.div_ceil(ROWS_MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    static COLUMNS: [Column; 2] = [
        Column { name: "name", label: "Name", is_number: false },
        Column { name: "size", label: "Size", is_number: true },
    ];

    fn listing(query: &str) -> Listing {
        Listing::of("/l", &COLUMNS, &Query::of(Some(query)), &["internal"])
    }

    #[test]
    fn a_page_is_a_part_of_the_list() {
        let all: Vec<usize> = (0..250).collect();
        assert_eq!(listing("").rows(&all), &all[..100]);
        assert_eq!(listing("page=3").rows(&all), &all[200..]);
        assert_eq!(listing("page=99999999999").rows(&all), &all[200..]);
        assert_eq!(listing("page=-4").rows(&all), &all[..100]);
        assert!(listing("page=7").rows::<usize>(&[]).is_empty());
    }

    #[test]
    fn names_rise_and_numbers_fall_unless_asked_otherwise() {
        assert!(!listing("").descending && listing("sort=size").descending);
        assert!(!listing("sort=size&order=asc").descending);
        assert_eq!(listing("sort=nonsense").sort, "name");
    }

    #[test]
    fn links_keep_what_was_asked() {
        let heads = listing("q=a%26b&internal=1").heads(&COLUMNS).into_string();
        assert!(
            heads.contains("/l?q=a%26b&amp;sort=size&amp;order=desc&amp;page=1&amp;internal=1"),
            "{heads}"
        );
        assert!(heads.contains("aria-sort=\"ascending\""), "{heads}");
    }
}
