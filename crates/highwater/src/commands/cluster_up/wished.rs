//! What was typed for all brokers: the configuration of each, whether it could start with that, and where gateways are then.

use std::io;

use configuration::{Configuration, Source, Sources, Warning};

use super::folder::Folder;
use super::gateways::{self, Gateways};
use super::plan::{self, DECIDED, Node, Plan};
use super::say;
use crate::arguments::Pair;
use crate::failure::Failure;

/// Settings of all brokers.
#[derive(Debug)]
pub struct Wished {
    settings: Vec<Pair>,
    /// What they say of gateways.
    pub gateways: Gateways,
}

impl Wished {
    /// Of these settings, for so many brokers.
    ///
    /// # Errors
    /// Gateways cannot be had where they say.
    pub fn of(settings: Vec<Pair>, brokers: u16) -> Result<Wished, Failure> {
        let gateways = Gateways::read(&settings, brokers).map_err(|why| unusable().detail(why))?;
        Ok(Wished { settings, gateways })
    }

    /// Whether brokers serve metrics and health.
    pub fn serves_http(&self) -> bool {
        plan::serves_http(&self.settings)
    }

    /// Whether a broker could start with what the plan and the settings say; the addresses of gateways then, in the order
    /// of the brokers. Nothing was written yet.
    ///
    /// # Errors
    /// A broker could not start.
    pub fn check(&self, plan: &Plan, folder: &Folder) -> Result<Vec<String>, Failure> {
        if let Some(port) = plan.clash(&self.gateways) {
            let detail =
                format!("a gateway would have port {port}, which a broker of this cluster has");
            return Err(unusable().detail(detail).hint(
                "name another port by --set gateway.listener=127.0.0.1:8082, or leave it out",
            ));
        }
        let urls = plan.brokers.iter().map(|node| self.check_broker(plan, folder, node));
        urls.filter_map(Result::transpose).collect()
    }

    /// The address of its gateway, if it has one.
    fn check_broker(
        &self,
        plan: &Plan,
        folder: &Folder,
        node: &Node,
    ) -> Result<Option<String>, Failure> {
        let text = self.properties(plan, folder, node);
        let sources = Sources::new().environment(std::env::vars_os());
        let sources = sources.file(&folder.properties(node), text.as_bytes());
        let loaded = Configuration::load_all(&sources, false);
        if let Some(name) = named_by_environment(&loaded.configuration) {
            return Err(Failure::new(format!("the environment variable {name} is set"))
                .detail("it would win over the configurations of all brokers, which need values of their own")
                .hint(format!("unset {name}")));
        }
        let (config, warnings) = loaded.finish().map_err(|invalid| {
            unusable()
                .detail(invalid)
                .hint("these files are written anew at each start: change what --set says, or the environment")
        })?;
        if node.id == 1 {
            let surprises = warnings.iter().filter(|warning| is_surprise(warning));
            surprises.for_each(|warning| say(&format!("warning: {warning}")));
        }
        Ok(gateways::url(&config.gateway))
    }

    /// Writes the plan, and what each broker is started with.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn write(&self, plan: &Plan, folder: &Folder) -> io::Result<()> {
        folder.keep(plan)?;
        let mut brokers = plan.brokers.iter();
        brokers.try_for_each(|node| folder.prepare(node, &self.properties(plan, folder, node)))
    }

    fn properties(&self, plan: &Plan, folder: &Folder, node: &Node) -> String {
        plan.properties(node, &folder.data(node), &self.settings, &self.gateways)
    }
}

fn unusable() -> Failure {
    Failure::new("the configuration cannot be used")
}

/// The first variable that would win over what is decided for each broker.
fn named_by_environment(configuration: &Configuration) -> Option<String> {
    let mut keys = DECIDED.iter().chain([&gateways::LISTENER]);
    keys.find_map(|key| {
        let assigned = configuration.assigned(key)?;
        match &assigned.source {
            Source::Environment(name) if !plan::holds_for_all(key, &assigned.value) => {
                Some(name.clone())
            }
            _ => None,
        }
    })
}

/// A slip of whoever typed it, rather than what the brokers say of themselves.
fn is_surprise(warning: &Warning) -> bool {
    matches!(warning, Warning::UnknownKey { .. } | Warning::SaidTwice { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(key: &str, value: &str) -> Option<String> {
        let variable = (key.into(), value.into());
        let sources = Sources::new().environment([variable].into_iter());
        named_by_environment(&Configuration::load_all(&sources, false).configuration)
    }

    #[test]
    fn a_variable_that_names_no_folder_for_consoles_holds_for_all_brokers() {
        let dir = "HIGHWATER_CONSOLE_STATE_DIR";
        assert_eq!(named(dir, ""), None);
        assert_eq!(named(dir, "/one/for/all"), Some(dir.to_owned()));
        // Whether metrics and health are waited for is known from --set alone.
        let listener = "HIGHWATER_HTTP_LISTENER";
        assert_eq!(named(listener, ""), Some(listener.to_owned()));
    }
}
