//! The forms of actions. A form that was refused comes back with what was typed.

use hyper::StatusCode;
use maud::{Markup, html};
use serving::choice::{BrokerStrategy, Strategy};
use serving::operation::{Fields, Invalid, Kind};

use super::path;
use crate::Visit;
use crate::pages::{Page, distribution};
use crate::parts::text::visible;
use crate::query::link;

/// A form, and what is wrong with one of its fields.
struct Form<'a> {
    fields: &'a Fields,
    invalid: Option<&'a Invalid>,
}

pub(super) fn page(
    visit: &Visit<'_>,
    kind: Kind,
    fields: &Fields,
    invalid: Option<&Invalid>,
) -> Page {
    let form = Form { fields, invalid };
    let subject = fields.get("topic").or(fields.raw("group")).unwrap_or_default();
    let body = html! {
        p.crumbs { (crumb(kind, subject)) }
        h1 { (kind.title()) }
        @if let Some(invalid) = invalid {
            div.notice.bad role="alert" { p { (visible(&invalid.to_string())) } }
        }
        @if kind == Kind::Reassign { (proposal(visit, &form)) }
        form.act method="post" action=(path(kind)) {
            (parts(visit, kind, &form))
            div.buttons {
                button.primary type="submit" name="step" value="review" { "Review" }
                span.quiet { "Nothing is done before you have seen what will be." }
            }
        }
        @if kind == Kind::Produce { (distribution::section(visit, fields.get("topic"))) }
    };
    let status = invalid.map_or(StatusCode::OK, |_| StatusCode::UNPROCESSABLE_ENTITY);
    Page { status, title: kind.title().to_owned(), body }
}

fn crumb(kind: Kind, subject: &str) -> Markup {
    let (list, name, one, key) = match kind {
        Kind::MoveGroup | Kind::DeleteGroup => {
            ("/console/groups", "Groups", "/console/group", "id")
        }
        _ => ("/console/topics", "Topics", "/console/topic", "name"),
    };
    html! {
        a href=(list) { (name) }
        @if !subject.is_empty() { " / " a href=(link(one, &[(key, subject)])) { (visible(subject)) } }
    }
}

fn parts(visit: &Visit<'_>, kind: Kind, form: &Form<'_>) -> Markup {
    match kind {
        Kind::Produce => produce(form),
        Kind::CreateTopic => html! {
            (form.text("topic", "Name", true))
            (form.number("partitions", "Partitions", "the brokers' default"))
            (form.number("replicas", "Copies of each", "the brokers' default"))
            (form.area("settings", "Configuration, one name=value on each line", 4))
        },
        Kind::AddPartitions => html! {
            (form.text("topic", "Topic", true))
            (form.number("total", "Partitions afterwards", ""))
            p.note { "Records with a key go to other partitions afterwards than before." }
        },
        Kind::AlterTopic => html! {
            (form.text("topic", "Topic", true))
            (form.area("set", "Set, one name=value on each line", 4))
            (form.area("delete", "Take back to the default, one name on each line", 3))
        },
        Kind::DeleteTopic => form.text("topic", "Topic", true),
        Kind::MoveGroup => move_group(visit, form),
        Kind::DeleteGroup => form.group(),
        Kind::ElectLeaders | Kind::CancelMoves => form.text("topic", "Topic; empty for all", false),
        Kind::LiftThrottle => html! { p { "Of all topics and brokers." } },
        Kind::Reassign => html! {
            (form.area("moves", "Where replicas go, as kafka-reassign-partitions.sh takes it", 8))
            (form.number("throttle", "Copied at most, in bytes a second for each broker", "no limit"))
        },
    }
}

fn produce(form: &Form<'_>) -> Markup {
    let brokers = std::iter::once(("none", "none"))
        .chain(BrokerStrategy::ALL.into_iter().map(|strategy| (strategy.name(), strategy.name())));
    html! {
        (form.text("topic", "Topic", true))
        div.row {
            (form.select("broker", "Broker chosen by", brokers))
            (form.select("partitioner", "Partition chosen by", Strategy::names().map(|name| (name, name))))
            (form.number("partition", "or this partition", "chosen"))
        }
        (form.text("key", "Key; empty for none. {n} is the number of the record", false))
        (form.area("value", "Value. {n} is the number of the record", 5))
        (form.check("no-value", "null instead of the value"))
        (form.area("headers", "Headers, one name=value on each line", 2))
        (form.number("count", "How many records, at most 1000", "1"))
    }
}

fn move_group(visit: &Visit<'_>, form: &Form<'_>) -> Markup {
    let group = form.fields.raw("group").unwrap_or_default();
    let rows = visit.snapshot.groups.get(group).and_then(|group| group.rows.as_ref().ok());
    let mut topics: Vec<&str> = rows.into_iter().flatten().map(|row| &*row.topic).collect();
    topics.dedup();
    let targets = [
        ("earliest", "Earliest: the first record that is there"),
        ("latest", "Latest: behind the last one"),
        ("offset", "An offset"),
        ("time", "A time"),
        ("shift", "Shifted from where it is"),
    ];
    html! {
        (form.group())
        (form.text("topic", "Only this topic; empty for all that it has committed", false))
        @if !topics.is_empty() {
            p.quiet { "It has committed offsets of: " @for (at, topic) in topics.iter().enumerate() { @if at > 0 { ", " } (visible(topic)) } }
        }
        (form.select("to", "Where to", targets.into_iter()))
        div.row {
            (form.number("offset", "Offset", "for: an offset"))
            (form.text_hint("time", "Time (UTC)", "2026-01-31T12:00, or milliseconds"))
            (form.number("shift", "Records on, or back with a minus", "for: shifted"))
        }
    }
}

/// What makes a proposal for moves: a form of GET, whose answer is the form below, filled in.
fn proposal(visit: &Visit<'_>, form: &Form<'_>) -> Markup {
    let chosen: Vec<&str> =
        form.fields.iter().filter(|(name, _)| *name == "on").map(|(_, id)| id).collect();
    html! {
        form.act method="get" action=(path(Kind::Reassign)) {
            (form.text("topic", "Topic", true))
            fieldset {
                legend { "On these brokers" }
                @for broker in visit.snapshot.brokers.values() {
                    @let id = broker.id.to_string();
                    label { input type="checkbox" name="on" value=(id) checked[chosen.is_empty() || chosen.contains(&&*id)]; " " (id) " " span.quiet { (broker.state.name()) } }
                }
            }
            (form.number("copies", "Copies of each partition", "as many as now"))
            div.buttons { button type="submit" name="propose" value="1" { "Propose" } }
        }
    }
}

impl Form<'_> {
    fn value(&self, name: &str) -> &str {
        self.fields.raw(name).unwrap_or_default()
    }

    fn is_invalid(&self, name: &str) -> Option<&'static str> {
        self.invalid.is_some_and(|invalid| invalid.field == name).then_some("true")
    }

    fn text(&self, name: &str, label: &str, required: bool) -> Markup {
        html! { div.field {
            label for=(name) { (label) }
            input #(name) type="text" name=(name) value=(self.value(name)) required[required] autocomplete="off" spellcheck="false" aria-invalid=[self.is_invalid(name)];
        } }
    }

    /// A group that was named is not typed again: its name may have characters that no field of text takes.
    fn group(&self) -> Markup {
        match self.fields.raw("group") {
            Some(name) if self.invalid.is_none_or(|invalid| invalid.field != "group") => html! {
                (super::hidden("group", name))
                p { "Group " strong { (visible(name)) } }
            },
            _ => self.text("group", "Group", true),
        }
    }

    fn text_hint(&self, name: &str, label: &str, hint: &str) -> Markup {
        html! { div.field {
            label for=(name) { (label) }
            input #(name) type="text" name=(name) value=(self.value(name)) placeholder=(hint) autocomplete="off" aria-invalid=[self.is_invalid(name)];
        } }
    }

    /// A field of text, so that whatever was typed comes back with what is wrong with it.
    fn number(&self, name: &str, label: &str, hint: &str) -> Markup {
        html! { div.field {
            label for=(name) { (label) }
            input.short #(name) type="text" inputmode="numeric" name=(name) value=(self.value(name)) placeholder=(hint) autocomplete="off" aria-invalid=[self.is_invalid(name)];
        } }
    }

    fn area(&self, name: &str, label: &str, rows: u32) -> Markup {
        html! { div.field {
            label for=(name) { (label) }
            // A line break at the beginning is not part of the text.
            textarea #(name) name=(name) rows=(rows) spellcheck="false" aria-invalid=[self.is_invalid(name)] { "\n" (self.value(name)) }
        } }
    }

    fn check(&self, name: &str, label: &str) -> Markup {
        html! { label.check { input type="checkbox" name=(name) value="1" checked[self.fields.is(name)]; " " (label) } }
    }

    fn select<'a>(
        &self,
        name: &str,
        label: &str,
        options: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Markup {
        let value = self.value(name);
        html! { div.field {
            label for=(name) { (label) }
            select #(name) name=(name) {
                @for (option, words) in options { option value=(option) selected[option == value] { (words) } }
            }
        } }
    }
}
