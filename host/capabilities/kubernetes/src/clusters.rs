//! The clusters by name.

use std::collections::BTreeMap;

use tokio::sync::OnceCell;

use crate::{Cluster, ClusterConfig, ClustersConfig, Error};

/// Every configured cluster; each is connected when it is first asked for, so that one that cannot be reached does
/// not stop the others.
#[derive(Debug)]
pub struct Clusters {
    default: String,
    clusters: BTreeMap<String, (ClusterConfig, OnceCell<Cluster>)>,
}

impl Clusters {
    /// # Errors
    /// `Invalid` where the default is not among the configured clusters.
    pub fn new(config: &ClustersConfig) -> Result<Self, Error> {
        if let Some(name) = config.clusters.keys().find(|name| name.contains(':')) {
            return Err(Error::Invalid(format!(
                "[kubernetes.clusters.{name:?}]: a cluster's name has no colon, since docker: is the Docker daemon; rename it"
            )));
        }
        let mut clusters: BTreeMap<_, _> =
            config.clusters.iter().map(|(n, c)| (n.clone(), (c.clone(), OnceCell::new()))).collect();
        if clusters.is_empty() {
            clusters.insert(config.default.clone(), (ClusterConfig::default(), OnceCell::new()));
        }
        if !clusters.contains_key(&config.default) {
            let known: Vec<&str> = clusters.keys().map(String::as_str).collect();
            return Err(Error::Invalid(format!(
                "[kubernetes] default = {:?} is not one of [kubernetes.clusters]: {}; set default to one of them",
                config.default,
                known.join(", ")
            )));
        }
        Ok(Self { default: config.default.clone(), clusters })
    }

    /// As [`Clusters::new`], and reads every cluster's credentials now, so that a wrong path shows at start.
    ///
    /// # Errors
    /// Also `Other` with code `kubeconfig`.
    pub async fn connect(config: &ClustersConfig) -> Result<Self, Error> {
        let all = Self::new(config)?;
        for name in all.clusters.keys() {
            all.get(Some(name)).await?;
        }
        Ok(all)
    }

    /// Clusters that are there already; the first is the default.
    pub fn of(clusters: Vec<Cluster>) -> Self {
        let default = clusters.first().map(|c| c.name().to_owned()).unwrap_or_default();
        let clusters = clusters
            .into_iter()
            .map(|c| (c.name().to_owned(), (ClusterConfig::default(), OnceCell::new_with(Some(c)))))
            .collect();
        Self { default, clusters }
    }

    /// The name that a call means; `None` and the default's name are the same.
    pub fn name<'a>(&'a self, cluster: Option<&'a str>) -> &'a str {
        cluster.unwrap_or(&self.default)
    }

    /// Whether the call means the default cluster.
    pub fn is_default(&self, cluster: Option<&str>) -> bool {
        self.name(cluster) == self.default
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.clusters.keys().map(String::as_str)
    }

    /// # Errors
    /// `Other` with code `unknown-cluster`, or `kubeconfig` where its credentials cannot be read (tried anew each time).
    pub async fn get(&self, cluster: Option<&str>) -> Result<Cluster, Error> {
        let name = self.name(cluster);
        let Some((config, cell)) = self.clusters.get(name) else {
            let known: Vec<&str> = self.names().collect();
            let why = match known.is_empty() {
                true => "no cluster is configured; set [kubernetes] in sutler.toml".to_owned(),
                false => format!("no cluster {name:?} is configured; known are {}", known.join(", ")),
            };
            return Err(Error::other("unknown-cluster", why));
        };
        cell.get_or_try_init(|| Cluster::connect(name, config)).await.cloned()
    }
}
