# What a fleet at Google needs: a network, firewall rules, an account that may do what is needed and nothing else, a bucket for golden disks.

provider "google" {
  project = var.project
  region  = var.region
}

locals {
  # The network tags that [gce] of the fleet's settings names.
  desk_tag    = "${var.name}-desk"
  closed_tag  = "${var.name}-closed"
  gateway_tag = "${var.name}-gateway"
  desk_port   = "5000"
}

resource "google_project_service" "needed" {
  for_each           = toset(["compute.googleapis.com", "storage.googleapis.com", "iam.googleapis.com"])
  service            = each.key
  disable_on_destroy = false
}

# ── network ──

resource "google_compute_network" "desks" {
  name                    = var.name
  auto_create_subnetworks = false
  depends_on              = [google_project_service.needed]
}

resource "google_compute_subnetwork" "desks" {
  name                     = "${var.name}-desks"
  network                  = google_compute_network.desks.id
  region                   = var.region
  ip_cidr_range            = var.cidr
  private_ip_google_access = false
}

resource "google_compute_subnetwork" "gateway" {
  name                     = "${var.name}-gateway"
  network                  = google_compute_network.desks.id
  region                   = var.region
  ip_cidr_range            = var.gateway_cidr
  private_ip_google_access = true
}

resource "google_compute_router" "nat" {
  count   = var.internet ? 1 : 0
  name    = "${var.name}-nat"
  network = google_compute_network.desks.id
  region  = var.region
}

resource "google_compute_router_nat" "nat" {
  count                              = var.internet ? 1 : 0
  name                               = "${var.name}-nat"
  router                             = google_compute_router.nat[0].name
  region                             = var.region
  nat_ip_allocate_option             = "AUTO_ONLY"
  source_subnetwork_ip_ranges_to_nat = "LIST_OF_SUBNETWORKS"

  subnetwork {
    name                    = google_compute_subnetwork.desks.id
    source_ip_ranges_to_nat = ["ALL_IP_RANGES"]
  }
}

# ── firewall: what is not allowed here is closed ──

resource "google_compute_firewall" "gateway_to_desks" {
  name          = "${var.name}-gateway-to-desks"
  description   = "The gateway reaches the desks' servers."
  network       = google_compute_network.desks.id
  direction     = "INGRESS"
  priority      = 1000
  source_ranges = [var.gateway_cidr]
  target_tags   = [local.desk_tag]

  allow {
    protocol = "tcp"
    ports    = [local.desk_port]
  }
}

resource "google_compute_firewall" "health" {
  count         = var.group ? 1 : 0
  name          = "${var.name}-health"
  description   = "Google's health checks of the instance group."
  network       = google_compute_network.desks.id
  direction     = "INGRESS"
  priority      = 1000
  source_ranges = ["35.191.0.0/16", "130.211.0.0/22"]
  target_tags   = [local.desk_tag]

  allow {
    protocol = "tcp"
    ports    = [local.desk_port]
  }
}

resource "google_compute_firewall" "administrators" {
  count         = length(var.administrators) > 0 ? 1 : 0
  name          = "${var.name}-administrators"
  description   = "People and agents reach the gateway; it speaks TLS there."
  network       = google_compute_network.desks.id
  direction     = "INGRESS"
  priority      = 1000
  source_ranges = var.administrators
  target_tags   = [local.gateway_tag]

  allow {
    protocol = "tcp"
    ports    = ["7700"]
  }
}

resource "google_compute_firewall" "desks_apart" {
  name               = "${var.name}-desks-apart"
  description        = "Desks reach neither each other nor the gateway nor other private networks."
  network            = google_compute_network.desks.id
  direction          = "EGRESS"
  priority           = 900
  destination_ranges = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"]
  target_tags        = [local.desk_tag]

  deny {
    protocol = "all"
  }
}

resource "google_compute_firewall" "closed" {
  name               = "${var.name}-closed"
  description        = "Desks without a network reach nothing. Answers to the gateway still pass: the firewall knows connections."
  network            = google_compute_network.desks.id
  direction          = "EGRESS"
  priority           = 800
  destination_ranges = ["0.0.0.0/0"]
  target_tags        = [local.closed_tag]

  deny {
    protocol = "all"
  }
}

# ── the fleet's account: machines, disks, images, snapshots; no keys, no other accounts, no networks ──

resource "google_service_account" "fleet" {
  account_id   = "${var.name}-fleet"
  display_name = "hotdesk serve"
}

resource "google_project_iam_custom_role" "fleet" {
  role_id     = "${replace(var.name, "-", "_")}_fleet"
  title       = "hotdesk fleet"
  description = "What hotdesk serve does with the provider gce, and nothing else."

  permissions = [
    "compute.disks.create",
    "compute.disks.createSnapshot",
    "compute.disks.delete",
    "compute.disks.list",
    "compute.disks.setLabels",
    "compute.disks.useReadOnly",
    "compute.firewalls.list",
    "compute.globalOperations.get",
    "compute.images.create",
    "compute.images.delete",
    "compute.images.get",
    "compute.images.getFromFamily",
    "compute.images.list",
    "compute.images.setLabels",
    "compute.images.useReadOnly",
    "compute.instances.create",
    "compute.instances.delete",
    "compute.instances.get",
    "compute.instances.getSerialPortOutput",
    "compute.instances.list",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setTags",
    "compute.instances.start",
    "compute.instances.stop",
    "compute.regions.get",
    "compute.snapshots.create",
    "compute.snapshots.delete",
    "compute.snapshots.get",
    "compute.snapshots.list",
    "compute.snapshots.setLabels",
    "compute.snapshots.useReadOnly",
    "compute.subnetworks.use",
    "compute.zoneOperations.get",
    "compute.zoneOperations.list",
    "compute.zones.get",
  ]
}

resource "google_project_iam_member" "fleet" {
  project = var.project
  role    = google_project_iam_custom_role.fleet.id
  member  = google_service_account.fleet.member
}

# ── golden disks ──

resource "google_storage_bucket" "disks" {
  name                        = var.bucket
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  # Uploads are removed after the import; what an import that broke off left goes after a week.
  lifecycle_rule {
    condition {
      age = 7
    }
    action {
      type = "Delete"
    }
  }
}

resource "google_storage_bucket_iam_member" "fleet" {
  bucket = google_storage_bucket.disks.name
  role   = "roles/storage.objectUser"
  member = google_service_account.fleet.member
}
