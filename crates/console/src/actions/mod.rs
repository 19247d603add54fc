//! What changes a cluster. Each action is a form (GET), a review (POST), and the doing of exactly what was reviewed (POST with the
//! review's token), written down before it begins ([`journal`]). Off, unless the console is told that it may.
//!
//! Read [`serving::operation`] for what there is, then [`forms`], [`review`] and [`perform`].

mod forms;
mod groups;
pub(crate) mod journal;
mod moves;
mod perform;
mod review;
mod token;

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use hyper::{Response, StatusCode};
use maud::{Markup, html};
use serving::operation::command::{Reached, command};
use serving::operation::read::operation;
use serving::operation::{Fields, Invalid, Kind, Operation};

use crate::answer;
use crate::pages::{self, Page};
use crate::parts::text::visible;
use crate::{Settings, Visit};
use journal::{End, Entry, Journal};
use token::{Refused, Tokens};

pub(crate) use moves::{page as moves_page, value as moves_value};

/// Where actions are decided and written down.
#[derive(Debug)]
pub(crate) struct Desk {
    /// Whether there are any.
    pub(crate) is_open: bool,
    pub(crate) journal: Journal,
    tokens: Tokens,
    /// How commands reach the cluster.
    bootstrap: String,
    command_config: Option<String>,
}

impl Desk {
    pub(crate) fn new(settings: &Settings, bootstrap: String) -> Desk {
        Desk {
            is_open: settings.write,
            journal: Journal::open(settings.state_dir.as_deref()),
            tokens: Tokens::new(),
            bootstrap,
            command_config: settings.command_config.clone(),
        }
    }
}

/// What a review says.
#[derive(Default)]
pub(crate) struct Review {
    /// What will be, for the person who decides.
    body: Markup,
    /// Fields that go with it to the doing.
    fields: Vec<(String, String)>,
    /// What must be typed.
    typed: Option<String>,
    /// Why it cannot be done.
    blocked: Option<String>,
    /// It destroys what cannot be had again.
    is_grave: bool,
}

/// What came of an action.
pub(crate) struct Told {
    lines: Vec<String>,
    is_done: bool,
}

impl Told {
    fn done(line: impl Into<String>) -> Told {
        Told { lines: vec![line.into()], is_done: true }
    }

    fn failed(why: impl std::fmt::Display) -> Told {
        Told { lines: vec![why.to_string()], is_done: false }
    }

    /// Of several things, each for itself.
    fn each<T>(
        results: impl IntoIterator<Item = (String, Result<T, client::ClientError>)>,
        done: &str,
    ) -> Told {
        let mut told = Told { lines: Vec::new(), is_done: true };
        for (name, result) in results {
            told.is_done &= result.is_ok();
            told.lines.push(match result {
                Ok(_) => format!("{name}: {done}"),
                Err(error) => format!("{name}: {error}"),
            });
        }
        told
    }
}

/// The form of an action.
pub(crate) async fn form(visit: &Visit<'_>, kind: Kind) -> Page {
    if !visit.desk.is_open {
        return closed();
    }
    let fields = visit.query.fields();
    let proposed = moves::proposed(visit, kind, &fields);
    match proposed {
        Ok(fields) => forms::page(visit, kind, &fields, None),
        Err(invalid) => forms::page(visit, kind, &fields, Some(&invalid)),
    }
}

/// Takes a form that was sent.
pub(crate) async fn take(visit: &Visit<'_>, kind: Kind, fields: &Fields) -> Response<Bytes> {
    if !visit.desk.is_open {
        return pages::whole(visit, "Actions", None, closed());
    }
    let asked = match operation(kind, fields) {
        Ok(asked) => asked,
        Err(invalid) => return refused(visit, kind, fields, &invalid),
    };
    if let Err(lack) = visit.by.rights.may(asked.deed()) {
        return not_allowed(visit, kind, &lack.to_string());
    }
    match fields.get("step") {
        Some("run") => run(visit, asked, fields).await,
        _ => reviewed(visit, &asked, fields).await,
    }
}

/// The form again, with what is wrong with it.
fn refused(visit: &Visit<'_>, kind: Kind, fields: &Fields, invalid: &Invalid) -> Response<Bytes> {
    let page = forms::page(visit, kind, fields, Some(invalid));
    pages::whole(visit, "Actions", None, page)
}

async fn reviewed(visit: &Visit<'_>, asked: &Operation, fields: &Fields) -> Response<Bytes> {
    let review = match review::of(visit, asked).await {
        Ok(review) => review,
        Err(why) => return problem(visit, asked.kind(), &why),
    };
    let kind = asked.kind();
    let kept = fields.iter().filter(|(name, _)| !["step", "token", "typed", "rows"].contains(name));
    let kept = kept.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let kept = Fields::new(kept.chain(review.fields.iter().cloned()));
    let token = visit.desk.tokens.issue(kind, &kept, visit.by.name, now_ms());
    let body = html! {
        p.crumbs { "Review" }
        h1 { (kind.title()) @if !asked.subject().is_empty() { ": " (visible(asked.subject())) } }
        (review.body)
        (command_line(visit, asked))
        @if let Some(why) = &review.blocked {
            div.notice.bad role="alert" { p { (visible(why)) } }
        }
        form.act method="post" action=(path(kind)) {
            @for (name, text) in kept.iter() { (hidden(name, text)) }
            (hidden("token", &token))
            @if review.blocked.is_none() {
                @if let Some(typed) = &review.typed {
                    div.field {
                        label for="typed" { "Type " strong { (visible(typed)) } " to confirm" }
                        input #typed type="text" name="typed" required autocomplete="off" spellcheck="false";
                    }
                }
                button.primary.grave[review.is_grave] type="submit" name="step" value="run" { (kind.title()) }
            }
            a.button href=(back(asked)) { "Cancel" }
        }
    };
    pages::whole(visit, "Actions", None, Page::new(kind.title(), body))
}

/// Does what was reviewed, once.
async fn run(visit: &Visit<'_>, asked: Operation, fields: &Fields) -> Response<Bytes> {
    let (desk, kind) = (visit.desk, asked.kind());
    if matches!(asked, Operation::DeleteTopic { .. })
        && fields.raw("typed") != Some(asked.subject())
    {
        let why = format!("the name {:?} was not typed: nothing was done", asked.subject());
        return problem(visit, kind, &why);
    }
    let head = match desk.tokens.take(kind, fields, visit.by.name, now_ms()) {
        Ok(head) => head,
        Err(Refused::Taken(Some(id))) => return answer::see(&format!("/console/actions?id={id}")),
        Err(refused) => return problem(visit, kind, words_of(refused)),
    };
    let entry = Entry {
        id: 0,
        at_ms: now_ms(),
        who: visit.by.name.to_owned(),
        kind: kind.name().to_owned(),
        subject: asked.subject().to_owned(),
        command: line(visit, &asked),
        end: End::UnderWay,
        lines: Vec::new(),
    };
    let id = match desk.journal.begin(entry) {
        Ok(id) => id,
        Err(why) => {
            desk.tokens.give_back(&head);
            return problem(visit, kind, &format!("{why}: nothing was done"));
        }
    };
    let told = perform::perform(visit, &asked).await;
    desk.journal.end(id, if told.is_done { End::Done } else { End::Failed }, told.lines);
    desk.tokens.note(&head, id);
    visit.looker.look_again();
    answer::see(&format!("/console/actions?id={id}"))
}

fn words_of(refused: Refused) -> &'static str {
    match refused {
        Refused::Foreign => {
            "this was not sent from a review of this console, or it has been restarted since: nothing was done"
        }
        Refused::Old => "the review is more than an hour old: nothing was done",
        Refused::Taken(_) => "this is under way already: see the log of actions",
    }
}

/// It cannot be done, or not be reviewed.
fn problem(visit: &Visit<'_>, kind: Kind, why: &str) -> Response<Bytes> {
    let body = html! {
        h1 { (kind.title()) }
        div.notice.bad role="alert" { p { (visible(why)) } }
        p { a href="/console/actions" { "Actions" } }
    };
    let page = Page { status: StatusCode::CONFLICT, title: kind.title().to_owned(), body };
    pages::whole(visit, "Actions", None, page)
}

/// Somebody may not have it done.
fn not_allowed(visit: &Visit<'_>, kind: Kind, why: &str) -> Response<Bytes> {
    let body = html! {
        h1 { (kind.title()) }
        div.notice.bad role="alert" { p { (visible(why)) ": nothing was done" } }
    };
    let page = Page { status: StatusCode::FORBIDDEN, title: kind.title().to_owned(), body };
    pages::whole(visit, "Actions", None, page)
}

fn closed() -> Page {
    let body = html! {
        h1 { "Nothing can be changed here" }
        div.notice { p {
            "This console only reads. To allow actions, start it with " code { "console.write=true" }
            ", listening on this machine's own address or with users (" code { "gateway.users.file" } ")."
        } }
        p { a href="/console" { "Overview" } }
    };
    Page { status: StatusCode::FORBIDDEN, title: "Read only".to_owned(), body }
}

/// Where an action's form is.
pub(crate) fn path(kind: Kind) -> String {
    format!("/console/do/{}", kind.name())
}

fn back(asked: &Operation) -> String {
    let subject = asked.subject();
    match asked.kind() {
        Kind::MoveGroup | Kind::DeleteGroup => {
            crate::query::link("/console/group", &[("id", subject)])
        }
        Kind::CreateTopic | Kind::LiftThrottle => "/console/topics".to_owned(),
        _ if subject.is_empty() => "/console/topics".to_owned(),
        _ => crate::query::link("/console/topic", &[("name", subject)]),
    }
}

/// The command that does the same.
fn line(visit: &Visit<'_>, asked: &Operation) -> String {
    let gateway = visit.front.url();
    let Desk { bootstrap, command_config, .. } = visit.desk;
    command(asked, &Reached { bootstrap, config: command_config.as_deref(), gateway: &gateway })
}

fn command_line(visit: &Visit<'_>, asked: &Operation) -> Markup {
    html! {
        h2 { "The same as a command" }
        pre.command tabindex="0" { code { (visible(&line(visit, asked))) } }
    }
}

fn hidden(name: &str, text: &str) -> Markup {
    // Browsers leave the first line break of a text area out, and none of a hidden field.
    html! { input type="hidden" name=(name) value=(text); }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
